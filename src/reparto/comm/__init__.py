"""How workers talk. ``Group`` is the interface; the others carry it or wrap it."""

from reparto.comm._base import MAX, MIN, SUM, Group
from reparto.comm._counting import CountingGroup
from reparto.comm._echo import EchoGroup
from reparto.comm._gloo import GlooGroup, own_address
from reparto.comm._host import HostGroup, host_group
from reparto.comm._nccl import NcclGroup
from reparto.comm._routed import RoutedGroup
from reparto.comm._stopwatch import Stopwatch
from reparto.comm._thread import Meeting, ThreadGroup
from reparto.comm._throttled import ThrottledGroup
from reparto.comm._wire import Departure, Wire

__all__ = [
    "MAX",
    "MIN",
    "SUM",
    "CountingGroup",
    "Departure",
    "EchoGroup",
    "GlooGroup",
    "Group",
    "HostGroup",
    "Meeting",
    "NcclGroup",
    "RoutedGroup",
    "Stopwatch",
    "ThreadGroup",
    "ThrottledGroup",
    "Wire",
    "host_group",
    "own_address",
]
