"""`tessella serve`: run folders in a browser of this machine, until it is stopped."""

from __future__ import annotations

import argparse

from tessella.report.serving import RunServer


def run(options: argparse.Namespace) -> int:
    with RunServer(options.folder, options.port) as server:
        print(f"{options.folder} is shown at {server.address} (on this machine only; Ctrl-C stops)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
