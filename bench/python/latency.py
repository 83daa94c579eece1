# SPDX-License-Identifier: Apache-2.0
"""Microseconds per call of small models, hostjit and its peers side by side.

python bench/python/latency.py
python bench/python/latency.py --peers hostjit,eager,compile --workloads policy_b1,chain32
"""

import argparse
import math
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import machine
import torch
from measure import Timed, interleave
from names import names_of
from peers import PEERS, Peer, Prepared
from report import Row, summary, table, write_json
from workloads import WORKLOADS, Workload


def main() -> int:
    arguments = parse()
    machine.pin(arguments.threads)
    print(describe(machine.facts()), file=sys.stderr)
    peers = available(arguments.peers)
    rows: list[Row] = []
    with torch.no_grad():
        for name in arguments.workloads:
            rows += measure(WORKLOADS[name], peers, arguments.rounds, arguments.threads)
    print(table(rows, arguments.markdown))
    if "hostjit" in arguments.peers and len(peers) > 1:
        print()
        print(summary(rows, arguments.markdown))
    if arguments.json:
        versions = {peer.requires[0]: peer.version() for peer in peers if peer.requires}
        write_json(arguments.json, {**machine.facts(), "packages": versions}, rows)
    failures = [row for row in rows if row.failure]
    return 1 if failures else 0


def measure(
    workload: Workload,
    peers: Sequence[Peer],
    rounds: int,
    threads: int,
    limit_seconds: float = math.inf,
) -> list[Row]:
    """Prepare and check every peer, then time those that agree with eager."""
    print(f"{workload.name}: preparing", end="", flush=True, file=sys.stderr)
    failures: dict[str, str] = {}
    prepared: dict[str, tuple[Prepared, float]] = {}
    for peer in peers:
        print(f" {peer.name}", end="", flush=True, file=sys.stderr)
        begin = time.perf_counter()
        try:
            candidate = peer.prepare(workload, threads)
            call(candidate, workload, seed=0)
            prepared[peer.name] = candidate, time.perf_counter() - begin
            check(candidate, workload)
        except Exception as error:
            failures[peer.name] = describe_error(error)
    print(", timing", file=sys.stderr)
    timed = {
        name: Timed(candidate.function, [candidate.from_torch(x) for x in workload.inputs()])
        for name, (candidate, _) in prepared.items()
        if name not in failures
    }
    timings = dict(zip(timed, interleave(list(timed.values()), rounds, limit_seconds), strict=True))
    for name in timings:
        try:
            check(prepared[name][0], workload)
        except Exception as error:
            failures[name] = f"after timing: {describe_error(error)}"
    return [
        Row(workload.name, peer.name, failures[peer.name])
        if peer.name in failures
        else Row(
            workload.name,
            peer.name,
            median_us=timings[peer.name].median * 1e6,
            min_us=timings[peer.name].minimum * 1e6,
            calls_per_round=timings[peer.name].calls_per_round,
            prepare_s=prepared[peer.name][1],
            rounds_us=[seconds * 1e6 for seconds in timings[peer.name].rounds],
        )
        for peer in peers
    ]


def check(candidate: Prepared, workload: Workload) -> None:
    """Compare with eager on two sets of inputs, the second unknown when the peer compiled."""
    for seed in (0, 1):
        expected = workload.module()(*workload.inputs(seed))
        torch.testing.assert_close(call(candidate, workload, seed), expected)


def call(candidate: Prepared, workload: Workload, seed: int) -> torch.Tensor:
    inputs = [candidate.from_torch(tensor) for tensor in workload.inputs(seed)]
    return candidate.to_torch(candidate.function(*inputs))


def available(names: Sequence[str], known: Mapping[str, Peer] = PEERS) -> list[Peer]:
    """Return the peers that can run, and say about the others why not."""
    peers = []
    for name in names:
        if reason := known[name].unavailable():
            print(f"without {name}: {reason}", file=sys.stderr)
        else:
            peers.append(known[name])
    return peers


def describe(facts: dict[str, object]) -> str:
    return "\n".join(f"{key}: {value}" for key, value in facts.items())


def describe_error(error: Exception) -> str:
    text = " ".join(str(error).split())
    if os.environ.get("HOSTJIT_BENCH_TRACEBACK"):
        raise error
    return f"FAILED {type(error).__name__}: {text[:160]}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Microseconds per call of small models, hostjit and its peers side by side.",
        epilog="peers: "
        + "; ".join(f"{peer.name} - {peer.description}" for peer in PEERS.values())
        + ". workloads: "
        + "; ".join(f"{workload.name} - {workload.description}" for workload in WORKLOADS.values()),
    )
    parser.add_argument("--peers", type=names_of(PEERS), default=list(PEERS), metavar="A,B")
    parser.add_argument(
        "--workloads", type=names_of(WORKLOADS), default=list(WORKLOADS), metavar="A,B"
    )
    parser.add_argument("--rounds", type=int, default=51, help="at least 30 for a reported number")
    parser.add_argument("--threads", type=int, default=1, help="threads and cores to use")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round here")
    parser.add_argument("--markdown", action="store_true", help="print tables for a page")
    return parser.parse_args()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    sys.exit(main())
