"""``python -m harness`` is the ``fedjoule`` command."""

from harness.cli import main

main()
