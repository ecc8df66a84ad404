"""``reparto lab``: networks of machines on one machine."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS, _lab_sweep
from reparto.cli._arguments import add_json, count, new_parser
from reparto.cli._run import add_training, train

if TYPE_CHECKING:
    from reparto.lab import LabCheck, Layout
    from reparto.spec import Cluster, Lab

_EXAMPLE = """\
  reparto lab run --nodes 4 --rate 100mbit --cpu 0.45 train.py --epochs 3
  reparto lab check --nodes 2 --rate 50mbit --cpu 0.45
  reparto lab sweep --nodes 1,2,4 --rates 10mbit,100mbit,none --cpu 0.45 --target 0.3 train.py
  reparto lab up office.toml; reparto lab run office.toml train.py; reparto lab down

office.toml:
  rate = "100mbit"            # each way, of every host; or up and down
  cpu = 0.45                  # cores' worth of time; also memory, delay, jitter, loss
  [[hosts]]                   # or nodes = 4, all alike
  name = "old"
  cpu = 0.2
  [[hosts]]
  name = "new"\
"""

_EXAMPLES = {
    "up": "  reparto lab up office.toml\n  reparto lab up --nodes 2 --rate 10mbit --dry-run",
    "run": "  reparto lab run --nodes 4 --rate 100mbit --cpu 0.45 train.py --epochs 3\n"
    "  reparto lab run office.toml train.py",
    "check": "  reparto lab check --nodes 2 --rate 50mbit --cpu 0.45",
    "sweep": _lab_sweep.EXAMPLE,
    "down": "  reparto lab down\n  reparto lab down office",
    "list": "  reparto lab list --json -",
}

#: Name, then what ``reparto lab --help`` says.
_COMMANDS = {
    "up": "build a lab that stays until it is taken down",
    "run": "train a script on a lab: on one that is up, or on one that lasts as long",
    "check": "measure a lab: is it what it was set to?",
    "sweep": _lab_sweep.SUMMARY,
    "down": "take labs down, and what an earlier crash left",
    "list": "tell which labs are up",
}


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "lab", COMMANDS["lab"], _EXAMPLE)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    adders = {
        "up": _add_up,
        "run": _add_run,
        "check": _add_check,
        "sweep": _add_sweep,
        "down": _add_down,
        "list": _add_list,
    }
    for name, summary in _COMMANDS.items():
        adders[name](new_parser(commands, name, summary, _EXAMPLES[name]))

    def no_command(args: argparse.Namespace) -> int:
        parser.print_help()
        return 2

    parser.set_defaults(command=no_command)


def _add_up(parser: argparse.ArgumentParser) -> None:
    add_lab(parser, positional=True)
    parser.add_argument("--dry-run", action="store_true", help="print the commands, and stop")
    add_json(parser)
    parser.set_defaults(command=_up)


def _add_run(parser: argparse.ArgumentParser) -> None:
    add_lab(parser)
    parser.add_argument("--workers", type=count, metavar="N", help="default: one a host")
    add_training(parser, threads="whole cores of a host, at least 1")
    add_json(parser)
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="[lab.toml] SCRIPT ARGS",
        help="the lab's file, the training script, and what belongs to the script",
    )
    parser.set_defaults(command=_run, parser=parser)


def _add_check(parser: argparse.ArgumentParser) -> None:
    add_lab(parser, positional=True)
    add_json(parser)
    parser.set_defaults(command=_check)


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    add_host_limits(parser)
    _lab_sweep.add_arguments(parser)


def _add_down(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="of a lab, or its file; default: all"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands, and stop")
    add_json(parser)
    parser.set_defaults(command=_down)


def _add_list(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.set_defaults(command=_list)


def add_lab(parser: argparse.ArgumentParser, *, positional: bool = False) -> None:
    """Add the flags that describe a lab; they override its file."""
    add = parser.add_argument
    if positional:
        add("file", nargs="?", metavar="lab.toml", help="the lab's file")
    add("--nodes", type=count, metavar="N", help="hosts, all alike")
    add("--rate", metavar="RATE", help="of each host's line, each way: 10mbit, 1gbit, none")
    add("--up", metavar="RATE", help="of what a host sends")
    add("--down", metavar="RATE", help="of what it receives")
    add_host_limits(parser)
    add("--name", metavar="NAME", help="of the lab; default: the file's")


def add_host_limits(parser: argparse.ArgumentParser) -> None:
    """Add what holds for every host but the rate."""
    add = parser.add_argument
    add("--cpu", type=float, metavar="CORES", help="cores' worth of time of each host: 0.45")
    add("--memory", metavar="SIZE", help="of each host: 2GiB")
    add("--delay", metavar="TIME", help="of what each host sends: 5ms")
    add("--jitter", metavar="TIME", help="by how much that varies: 1ms")
    add("--loss", type=float, metavar="SHARE", help="of the packets: 0.01")
    add(
        "--emulate",
        action="store_true",
        help="without namespaces, as where there is no root: workers hold themselves back",
    )


def lab_of(args: argparse.Namespace, file: str | None, name: str | None = None) -> Lab:
    """The lab that the arguments describe."""
    from reparto.lab import Flags, read_lab

    keys = ("rate", "up", "down", "cpu", "memory", "delay", "jitter", "loss")
    if file is not None or args.name is not None:
        name = args.name
    of_host = {key: getattr(args, key) for key in keys}
    flags = Flags(name=name, nodes=args.nodes, of_host=of_host)
    return read_lab(Path(file) if file is not None else None, flags)


def _up(args: argparse.Namespace) -> int:
    from reparto import lab as labs
    from reparto.cli._output import write_json
    from reparto.spec import to_plain

    lab = lab_of(args, args.file)
    if args.dry_run:
        layout = labs.lay_out(lab, labs.this_machine(), emulate=args.emulate)
        print(layout.as_text() or "nothing to be made", file=_quiet(args))
    else:
        layout = labs.up(lab, emulate=args.emulate)
        print(described(layout), file=_quiet(args))
    _tell_notes(layout)
    write_json(args.json, to_plain(layout))
    return 0


def _run(args: argparse.Namespace) -> int:
    from reparto import lab as labs
    from reparto.errors import UsageError

    file = None
    if args.words and args.words[0].endswith(".toml"):
        file = args.words[0]
        # Options may stand behind the lab's file.
        args = args.parser.parse_args(args.words[1:], args)
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not words:
        raise UsageError("there is no script to run", remedy="reparto lab run --nodes 2 train.py")
    args.script, *args.script_args = words
    args.engine, args.address, args.ship = "local", "", []
    args.no_probe = True  # a sequential run beside it takes CPU time that no host has
    lab = lab_of(args, file, f"run-{os.getpid()}")
    args.workers = args.workers or len(lab.hosts)
    args.threads = args.threads or max(1, int(min(host.cpu or 1 for host in lab.hosts)))
    if args.dry_run:
        layout = labs.lay_out(lab, labs.this_machine(), emulate=args.emulate)
        print(layout.as_text(), file=sys.stderr)
        return train(args, layout.cluster)
    with labs.stand(lab, emulate=args.emulate) as layout:
        print(described(layout), file=sys.stderr)
        _tell_notes(layout)
        return train(args, layout.cluster)


@contextmanager
def standing_cluster(lab: Lab) -> Iterator[Cluster]:
    """The hosts of a lab that is up, or of one that lasts as long."""
    from reparto import lab as labs

    with labs.stand(lab) as layout:
        print(described(layout), file=sys.stderr)
        _tell_notes(layout)
        yield layout.cluster


def _check(args: argparse.Namespace) -> int:
    from reparto import lab as labs
    from reparto.cli._output import write_json
    from reparto.spec import to_plain

    with labs.stand(_asked(args), emulate=args.emulate) as layout:
        print(described(layout), file=_quiet(args))
        _tell_notes(layout)
        found = labs.check(layout, lambda what: print(f"  measuring {what}", file=sys.stderr))
    print("\n".join(_table(found)), file=_quiet(args))
    write_json(args.json, {**to_plain(found), "good": found.is_good})
    if not found.is_good:
        print("a line is off by more than 5 %", file=sys.stderr)
    return 0 if found.is_good else 1


def _asked(args: argparse.Namespace) -> Lab:
    """The lab to be measured: the one described, or the only one that stands."""
    from reparto import lab as labs

    up = labs.standing()
    keys = ("file", "nodes", "name", "rate", "up", "down", "cpu", "memory", "delay", "loss")
    if len(up) == 1 and all(getattr(args, key) is None for key in keys):
        return up[0].lab
    return lab_of(args, args.file, f"check-{os.getpid()}")


def _down(args: argparse.Namespace) -> int:
    import shlex

    from reparto import lab as labs
    from reparto.cli._output import write_json
    from reparto.errors import UsageError

    up = {one.lab.name: one for one in labs.standing()}
    names = [
        labs.read_lab(Path(name), labs.Flags(of_host={})).name if name.endswith(".toml") else name
        for name in args.names
    ]
    for name in names:
        if name not in up:
            raise UsageError(
                f"there is no lab {name}", remedy=f"up are: {', '.join(up) or 'none'}"
            )
    names = names or list(up)
    for name in names:
        if args.dry_run:
            print("\n".join(map(shlex.join, up[name].layout.down)), file=_quiet(args))
        else:
            labs.down(name)
            print(f"{name} is down", file=_quiet(args))
    if not names:
        print("no lab is up", file=_quiet(args))
    for path in labs.unreadable():
        print(f"{path} cannot be read, so that lab is left as it is", file=sys.stderr)
    write_json(args.json, {"down": names})
    return 0


def _list(args: argparse.Namespace) -> int:
    from reparto import lab as labs
    from reparto.cli._output import write_json
    from reparto.spec import to_plain

    up = labs.standing()
    for one in up:
        left = "  (left by a command that is gone)" if one.is_abandoned else ""
        print(described(one.layout) + left, file=_quiet(args))
    if not up:
        print("no lab is up", file=_quiet(args))
    write_json(args.json, {"labs": [to_plain(one.layout) for one in up]})
    return 0


def described(layout: Layout) -> str:
    """A lab in one line."""
    from reparto.lab import rate_text

    hosts = layout.lab.hosts
    rates = {
        f"{rate_text(host.line.up_bits_per_s)} up, {rate_text(host.line.down_bits_per_s)} down"
        for host in hosts
    }
    shares = {f"{host.cpu:g} of a core" if host.cpu else "no limit" for host in hosts}
    how = {"kernel": "network namespaces", "emulated": "emulated"}[layout.kind]
    parts = [
        f"lab {layout.lab.name}",
        f"{len(hosts)} host{'s' * (len(hosts) > 1)}",
        rates.pop() if len(rates) == 1 else "lines differ",
        *([] if shares == {"no limit"} else [*shares] if len(shares) == 1 else ["shares differ"]),
        how,
    ]
    return " · ".join(parts)


def _tell_notes(layout: Layout) -> None:
    for note in layout.notes:
        print(f"  note: {note}", file=sys.stderr)


def _table(found: LabCheck) -> list[str]:
    from reparto.cli._style import columns

    has_iperf = any(line.iperf_bits_per_s is not None for line in found.lines)
    rows = [("host", "what", "set", "measured", "off", "iperf3" if has_iperf else "")]
    for line in found.lines:
        off = "" if line.off is None else f"{100 * line.off:+.1f} %{' !' if line.is_off else ''}"
        iperf = "" if line.iperf_bits_per_s is None else _mbits(line.iperf_bits_per_s)
        wanted = "none" if line.set_bits_per_s is None else _mbits(line.set_bits_per_s)
        measured = _mbits(line.measured_bits_per_s)
        rows.append((line.host, f"line {line.way}", wanted, measured, off, iperf))
    for cpu in found.cpus:
        limit = "none" if cpu.set_cores is None else f"{cpu.set_cores:g} cores"
        off = (
            f"{100 * (cpu.measured_cores / cpu.set_cores - 1):+.1f} %"
            if cpu.set_cores is not None
            else ""
        )
        rows.append((cpu.host, "CPU", limit, f"{cpu.measured_cores:.3f} cores", off, ""))
    for way in found.delays:
        names = " and ".join(way.between)
        rows.append(
            (names, "round trip", f"{1e3 * way.set_s:g} ms", f"{1e3 * way.measured_s:.2f} ms",
             "", "")
        )  # fmt: skip
    return columns(rows)


def _mbits(bits_per_s: float) -> str:
    return f"{bits_per_s / 1e6:.2f} Mbit/s"


def _quiet(args: argparse.Namespace) -> Any:
    """Where people read: standard output is kept free where JSON goes there."""
    return sys.stderr if args.json == "-" else sys.stdout
