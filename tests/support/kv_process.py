"""A process with something like a KV cache in its memory, which does as it is told on stdin.

`N` writes new random bytes into cache block N, and scratch that the next write overwrites; `-N`
writes zeros there. It answers each line with an empty one.
"""

import random
import sys

BLOCK_BYTES = 40 * 4096
BLOCKS = 64


def main() -> None:
    """Reads commands until stdin is closed."""
    cache = bytearray(BLOCK_BYTES * BLOCKS)
    scratch = bytearray(BLOCK_BYTES)
    print(flush=True)
    for line in sys.stdin:
        block = abs(int(line))
        erase = int(line) < 0
        data = bytes(BLOCK_BYTES) if erase else random.randbytes(BLOCK_BYTES)
        cache[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES] = data
        if not erase:
            scratch[:] = random.randbytes(BLOCK_BYTES)
        print(flush=True)


if __name__ == "__main__":
    main()
