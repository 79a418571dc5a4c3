"""The document's JSON schema: `python -m saltwall_security.report.schema` prints it."""

import json
from pathlib import Path
from typing import Final

from saltwall_security.report.document import FORMAT, Report

PATH: Final = Path(__file__).with_name("saltwall-audit-1.schema.json")
"""The published copy, for those who read reports with other programs."""


def schema_text() -> str:
    """The schema, as published."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": FORMAT}
    return json.dumps(head | Report.model_json_schema(), indent=1) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
