"""`python -m tessella` is the `tessella` command."""

from tessella.cli.main import main

raise SystemExit(main())
