"""`python -m saltwall_platform.cli`, where the `saltwall` script is not on PATH."""

from saltwall_platform.cli import main

main()
