"""``python -m harness`` is the ``joulefleet`` command."""

from harness.cli import main

main()
