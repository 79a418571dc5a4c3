"""The gateway process: puts the parts together, runs them, and takes them down in order."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import structlog
from starlette.types import ASGIApp

from saltwall_platform.admin import admin_app
from saltwall_platform.auth import Authenticator
from saltwall_platform.control import EngineControl
from saltwall_platform.errors import StartError
from saltwall_platform.freshness import Freshness
from saltwall_platform.front import Front
from saltwall_platform.generate import Generate
from saltwall_platform.inflight import InFlight
from saltwall_platform.kv_salts import KvSalts
from saltwall_platform.ledger import Ledger
from saltwall_platform.listeners import Listener
from saltwall_platform.logs import configure_logging
from saltwall_platform.metrics import EngineCollector, Metrics
from saltwall_platform.model_list import ModelList
from saltwall_platform.pusher import Pusher
from saltwall_platform.replicas import Replicas
from saltwall_platform.rotation import Rotation
from saltwall_platform.settings import Settings
from saltwall_platform.tracing import Tracing
from saltwall_platform.upstream import new_client
from saltwall_tenants.database import Database
from saltwall_tenants.errors import DomainError
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.wire import KeyFileError

RESTART_S = 1.0
# How long a connection may outlive the requests that were cut.
LINGER_S = 2.0

log = structlog.get_logger(__name__)


class Gateway:
    """One gateway on two ports.

    Raises:
        StartError: a port or the key file cannot be used; the message says what to do.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        try:
            keyring = Keyring.load(settings.keys_dir)
            self._database = Database(settings.database_url)
        except (KeyFileError, DomainError) as error:
            raise StartError(str(error)) from None
        self.metrics = Metrics()
        self.replicas = Replicas(settings.engines, keyring.ticket_root)
        self.metrics.registry.register(EngineCollector(self.replicas))
        self._tracing = Tracing(settings.otlp_endpoint)
        self._requests, self._control = new_client(), new_client()
        self.freshness = Freshness(self._database, settings.poll_interval_s)
        self._ledger = Ledger(self._database, self.metrics)
        authenticator = Authenticator(self._database, keyring, self.freshness)
        self._in_flight = InFlight(authenticator, self.freshness)
        acknowledged = asyncio.Event()
        pushers = {
            replica: Pusher(
                replica,
                EngineControl(self._control, replica.engine, replica.keys),
                self._database,
                self.freshness,
                self.metrics,
                lease_s=settings.lease_seconds,
                acknowledged=acknowledged,
            )
            for replica in self.replicas
        }
        rotation = Rotation(self._database, self.replicas, self.freshness, acknowledged)
        self._jobs: list[Callable[[], Awaitable[None]]] = [
            self.freshness.run,
            self._in_flight.run,
            self._ledger.run,
            rotation.run,
            *(pusher.run for pusher in pushers.values()),
        ]
        front = Front(
            generate=Generate(
                settings=settings,
                client=self._requests,
                authenticator=authenticator,
                freshness=self.freshness,
                kv_salts=KvSalts(self._database, keyring, self.freshness),
                in_flight=self._in_flight,
                replicas=self.replicas,
                pushers=pushers,
                metrics=self.metrics,
                tracing=self._tracing,
            ),
            models=ModelList(authenticator, self.replicas),
            ledger=self._ledger,
            metrics=self.metrics,
            tracing=self._tracing,
            patience_s=settings.idle_timeout_s,
        )
        self._stop = asyncio.Event()
        admin = admin_app(self.freshness, self.replicas, self.metrics, self._stop.is_set)
        self._data, self._admin = _listen(settings, front, admin)
        self.port, self.admin_port = self._data.port, self._admin.port

    def stop(self) -> None:
        """Asks `serve` to end: no new requests, and a grace for those that run."""
        self._stop.set()

    async def serve(self) -> None:
        """Serves until `stop`."""
        background = [asyncio.create_task(_forever(job)) for job in self._jobs]
        data = asyncio.create_task(self._data.run_until_stopped())
        admin = asyncio.create_task(self._admin.run_until_stopped())
        log.info("gateway listens", port=self.port, admin_port=self.admin_port)
        try:
            stop = asyncio.create_task(self._stop.wait())
            await asyncio.wait({stop, data, admin}, return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            self._stop.set()
            log.info("gateway stops", running=len(self._in_flight))
            self._data.should_exit = True
            await self._in_flight.drain(self._settings.shutdown_grace_s)
            self._admin.should_exit = True
            await asyncio.gather(data, admin)
        finally:
            for task in (*background, data, admin):
                task.cancel()
            await asyncio.gather(*background, data, admin, return_exceptions=True)
            await self._close()

    async def _close(self) -> None:
        await self._ledger.close()
        await self._requests.aclose()
        await self._control.aclose()
        await self._database.dispose()
        await asyncio.to_thread(self._tracing.shutdown)
        log.info("gateway stopped")


def run(settings: Settings) -> None:
    """Runs a gateway until SIGTERM or SIGINT; a second signal ends it the hard way.

    Raises:
        StartError: it cannot start; the message says what to do.
    """
    configure_logging(level=settings.log_level, as_json=settings.log_json)
    asyncio.run(_main(settings))


async def _main(settings: Settings) -> None:
    gateway = Gateway(settings)
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        gateway.stop()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, stop)
    await gateway.serve()


async def _forever(job: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await job()
        except Exception:
            log.exception("a background task failed and is started again", task=job.__qualname__)
        await asyncio.sleep(RESTART_S)


def _listen(settings: Settings, front: ASGIApp, admin: ASGIApp) -> tuple[Listener, Listener]:
    tenants = Listener(
        front,
        settings.host,
        settings.port,
        setting="SALTWALL_PORT",
        grace_s=settings.shutdown_grace_s + LINGER_S,
    )
    try:
        operators = Listener(
            admin,
            settings.admin_host,
            settings.admin_port,
            setting="SALTWALL_ADMIN_PORT",
            grace_s=LINGER_S,
        )
    except StartError:
        tenants.close()
        raise
    return tenants, operators
