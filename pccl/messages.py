# SPDX-License-Identifier: MIT
"""The messages between a peer and the master: frozen dataclasses, their encoding, and nothing else.

What for: the only place that turns untrusted bytes into objects of the control plane. Must not know: sockets, time, who
may say what when (the cores' tables), what a message causes.

The one idea: a message is a flat msgpack array `[kind, field, field, ...]`. Each field's annotation carries its limits,
so one walk checks type, range, length and count before an object exists; whatever does not fit raises ProtocolError.
The first two elements of a `Hello` or `StatusRequest` (kinds 1 and 15, version) and the whole of `Refused` (kind 64)
never change between versions, so any two versions can tell each other apart politely.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Annotated, Any

import msgpack

from pccl import scope
from pccl.errors import ProtocolError
from pccl.fields import Limit, decoder, encoder

PROTOCOL_VERSION = 11

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_TEXT_CHARACTERS = 1024
MAX_ADDRESS_CHARACTERS = 63
MAX_MEMBERS = 16_384
MAX_REPORT_LINES = 131_072
MAX_STALLED_RANKS = 8
MAX_SUBGROUPS = 65_536
MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_STATE_ENTRIES = 65_536
MAX_STATE_NAME_CHARACTERS = 255
MAX_STATE_DIMENSIONS = 64
MAX_STATUS_MEMBERS = 1024
MAX_MEASURED_LINKS = 64
NO_PLACE = 2**32 - 1
ID_BYTES = 16

Flag = bool
U16 = Annotated[int, Limit(0, 2**16 - 1)]
U32 = Annotated[int, Limit(0, 2**32 - 1)]
U64 = Annotated[int, Limit(0, 2**64 - 1)]
Id = Annotated[bytes, Limit(ID_BYTES, ID_BYTES)]
OptionalId = Annotated[bytes, Limit(0, ID_BYTES, ID_BYTES)]  # b"" is nobody
Text = Annotated[str, Limit(0, MAX_TEXT_CHARACTERS)]
Address = Annotated[str, Limit(1, MAX_ADDRESS_CHARACTERS)]
Body = Annotated[bytes, Limit(0, MAX_BODY_BYTES)]
Revision = Annotated[int, Limit(0, 2**63 - 1)]
Shape = Annotated[int, Limit(0, 2)]  # topology.Shape

# ---------------------------------------------------------------------------------------------- parts of messages


@dataclasses.dataclass(frozen=True, slots=True)
class Prices:
    """What links cost, inside a host and between hosts; 0 is unknown. The measured half of `pccl_prices`."""

    inside_latency_ns: U64
    inside_bytes_per_s: U64
    between_latency_ns: U64
    between_bytes_per_s: U64


NO_PRICES = Prices(0, 0, 0, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredLink:
    """The sender's link to `peer`, as far as it is known: one way, for a small message; 0 is unknown."""

    peer: Id
    latency_ns: U64
    bytes_per_s: U64


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One member of a view: who it is, where its data plane listens, how many cores it may use (0: unknown). Mirrors
    `pccl_member`."""

    id: Id
    address: Address
    port: U16
    host_id: U64
    cores: U32 = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ReportLine:
    """Mirrors `pccl_report_line`: in `scope` and `tag`, all below `returned_below` returned; `sequence` is in `state`
    (0-3), and `fingerprint` tells apart what was called under that name."""

    tag: U64
    returned_below: U32
    sequence: U32
    state: Annotated[int, Limit(0, 3)]
    fingerprint: U64 = 0
    scope: U64 = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Subgroup:
    """The ranks that a scope names, in its order."""

    scope: U64
    ranks: Annotated[tuple[U32, ...], Limit(1, MAX_MEMBERS)]


@dataclasses.dataclass(frozen=True, slots=True)
class OperationName:
    """Mirrors `pccl_operation_name`; the epoch is said beside it. `scope` 0: the whole group takes part."""

    tag: U64
    sequence: U32
    scope: U64 = 0

    @property
    def short(self) -> str:
        """As "tag 3 #0", "tag 3 #0 from rank 1 to rank 0" or "tag 3 #0 of subgroup 9f3a12bc"."""
        return f"tag {self.tag} #{self.sequence}{scope.words(self.scope)}"

    def __str__(self) -> str:
        """As "tag 3, sequence 0" or "tag 3, sequence 0, from rank 1 to rank 0"."""
        return f"tag {self.tag}, sequence {self.sequence}{scope.words(self.scope, ', ')}"


@dataclasses.dataclass(frozen=True, slots=True)
class Census:
    """What every peer may know about the whole run: accepted peers, groups, size of the largest group. It comes with
    what all members of a group learn at the same point of their calls, so that they read the same behind it."""

    peers: U32
    groups: U32
    largest_group: U32


@dataclasses.dataclass(frozen=True, slots=True)
class StateEntry:
    """One named tensor of a shared state. `digest` covers dtype, shape and bytes."""

    name: Annotated[str, Limit(0, MAX_STATE_NAME_CHARACTERS)]
    dtype: Annotated[str, Limit(1, 32)]
    shape: Annotated[tuple[U64, ...], Limit(0, MAX_STATE_DIMENSIONS)]
    digest: Id
    allow_inequality: Flag = False


@dataclasses.dataclass(frozen=True, slots=True)
class StateSource:
    """The content `digest` of entry `index` can be fetched from `donors` (places in the plan's list; none: all)."""

    index: Annotated[int, Limit(0, MAX_STATE_ENTRIES - 1)]
    digest: Id
    donors: Annotated[tuple[U32, ...], Limit(0, MAX_MEMBERS)]


@dataclasses.dataclass(frozen=True, slots=True)
class StateDonor:
    """A member that serves its content; its rank is for texts only."""

    peer: Id
    rank: U32


@dataclasses.dataclass(frozen=True, slots=True)
class StateReceived:
    """`count` bytes of content came from `donor`."""

    donor: Id
    count: U64


@dataclasses.dataclass(frozen=True, slots=True)
class StateTaken:
    """Of entry `index`, in which members may differ, the content `digest` was fetched."""

    index: Annotated[int, Limit(0, MAX_STATE_ENTRIES - 1)]
    digest: Id


# ---------------------------------------------------------------------------------------------- peer -> master


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """First message on every control connection. `secret` is the peer's own, drawn at its start: whoever shows it again
    with the same id is the same process. `epoch` is the last installed one, 0 for none."""

    version: U32
    secret: Id
    group: U32
    epoch: U64


@dataclasses.dataclass(frozen=True, slots=True)
class Register:
    """The data plane listens: the peer may be made a member, as what a Member says of it. Newcomers that are admitted
    together stand in the order of their `place`. Repeated after each Welcome."""

    address: Address
    port: U16
    host_id: U64
    cores: U32 = 0
    place: U32 = NO_PLACE


@dataclasses.dataclass(frozen=True, slots=True)
class Heartbeat:
    """Once per `heartbeat_ms`. The master answers with HeartbeatReply. `epoch` says what is installed."""

    epoch: U64


@dataclasses.dataclass(frozen=True, slots=True)
class Vote:
    """A joint call. `call` rises with each vote of this peer; `kind` is a VoteKind; `body` belongs to the kind."""

    call: U64
    kind: Annotated[int, Limit(1, 4)]
    body: Body


@dataclasses.dataclass(frozen=True, slots=True)
class Withdraw:
    """The sender waits no longer for vote `call`, of that kind. The answer is a VoteResult: the vote's own if it was
    complete, else TIMEOUT with whom it waited for. `abandoned`: its caller is gone, so that it does not do its part in
    a complete vote either. With `call` 0 a newcomer gives up its wish to be admitted: it gets Refused, or its View."""

    call: U64
    kind: Annotated[int, Limit(1, 4)]
    abandoned: Flag


@dataclasses.dataclass(frozen=True, slots=True)
class Suspect:
    """A link to `peer` broke in `epoch`, while no operation needed it or after the freeze."""

    epoch: U64
    peer: Id
    reason: U16
    text: Text


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """`epoch` is frozen here; `lines` is the state of its operations, `subgroups` those of which some are DATA_DONE.
    `suspect` is b"" where nobody is suspected."""

    epoch: U64
    suspect: OptionalId
    reason: U16
    text: Text
    lines: Annotated[tuple[ReportLine, ...], Limit(0, MAX_REPORT_LINES)]
    subgroups: Annotated[tuple[Subgroup, ...], Limit(0, MAX_SUBGROUPS)] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Linked:
    """The link to `peer`, which a Dial or a Suspect of reason TIMEOUT was about, stands in `epoch`."""

    epoch: U64
    peer: Id


@dataclasses.dataclass(frozen=True, slots=True)
class Stalled:
    """An operation has waited `waited_ms` for `ranks` (the first few of them). `absent`: those have not started it, as
    all members were asked; else the sender waits for them, and they may be waiting too. `waited_ms` 0: what was said of
    it before is over. `subgroup`: the ranks of the subgroup whose operation it is, else empty."""

    epoch: U64
    operation: OperationName
    waited_ms: U32
    ranks: Annotated[tuple[U32, ...], Limit(0, MAX_STALLED_RANKS)]
    absent: Flag
    subgroup: Annotated[tuple[U32, ...], Limit(0, MAX_MEMBERS)] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Started:
    """Answer to HasStarted: 0 no, 1 yes, 2 that epoch is not the current one here."""

    epoch: U64
    operation: OperationName
    answer: Annotated[int, Limit(0, 2)]


@dataclasses.dataclass(frozen=True, slots=True)
class ProbeReply:
    """Answer to Probe, with its nonce."""

    nonce: U64


@dataclasses.dataclass(frozen=True, slots=True)
class Leave:
    """The peer goes in good order. Nothing follows."""

    text: Text


@dataclasses.dataclass(frozen=True, slots=True)
class StateOffer:
    """The body of a SYNC vote: what the voter holds. `entries` are in strict order of name."""

    revision: Revision
    strategy: Annotated[int, Limit(0, 2)]
    entries: Annotated[tuple[StateEntry, ...], Limit(1, MAX_STATE_ENTRIES)]


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredLinks:
    """The body of an OPTIMIZE vote: what some of the voter's links showed so far."""

    links: Annotated[tuple[MeasuredLink, ...], Limit(0, MAX_MEASURED_LINKS)]


@dataclasses.dataclass(frozen=True, slots=True)
class StateFetched:
    """The sender holds verified bytes of all that the plan of `sync` and `round` told it to fetch, and serves them if
    that said so. `taken`: the entries fetched in which members may differ."""

    sync: U64
    received: Annotated[tuple[StateReceived, ...], Limit(0, MAX_MEMBERS)]
    taken: Annotated[tuple[StateTaken, ...], Limit(0, MAX_STATE_ENTRIES)] = ()
    round: U32 = 0


@dataclasses.dataclass(frozen=True, slots=True)
class StateFailed:
    """The sender cannot get what the plan of `sync` and `round` told it to fetch, or cannot serve it."""

    sync: U64
    text: Text
    round: U32 = 0


# ---------------------------------------------------------------------------------------------- master -> peer


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a Hello or Register that cannot be accepted. Frozen across versions. `reason` is a Status."""

    version: U32
    reason: U16
    text: Text


@dataclasses.dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to Hello. `run_secret` opens the data plane; the limits are the master's for all peers."""

    version: U32
    run_secret: Id
    heartbeat_ms: U32
    heartbeat_limit_ms: U32


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """A new epoch of the receiver's group. `commits` are verdicts for epoch `previous`; what is not named there and
    has not returned is aborted with `cause` (a Status) and `text`. `ring` lists ranks in ring order. `shape` (a
    topology.Shape) says which links operations use; `parents` is a tree's, by place in `ring`, else empty. `prices` are
    what algorithms are chosen by.
    A member in `admitted` (ranks) had no epoch before; for it `previous` and `commits` mean nothing. `census` is of
    the moment when the epoch was made, also when the view is told again."""

    epoch: U64
    previous: U64
    group: U32
    members: Annotated[tuple[Member, ...], Limit(1, MAX_MEMBERS)]
    ring: Annotated[tuple[U32, ...], Limit(1, MAX_MEMBERS)]
    admitted: Annotated[tuple[U32, ...], Limit(0, MAX_MEMBERS)]
    commits: Annotated[tuple[OperationName, ...], Limit(0, MAX_REPORT_LINES)]
    cause: U16
    text: Text
    census: Census
    shape: Shape = 0
    parents: Annotated[tuple[U32, ...], Limit(0, MAX_MEMBERS)] = ()
    prices: Prices = NO_PRICES


@dataclasses.dataclass(frozen=True, slots=True)
class FreezeEpoch:
    """Stop all operations of `epoch` and report them."""

    epoch: U64


@dataclasses.dataclass(frozen=True, slots=True)
class Dial:
    """Make the link to `peer` in `epoch`: it cannot dial you, or the link is tried again. Linked follows, if it can."""

    epoch: U64
    peer: Id


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """Are you there? Answer with ProbeReply(nonce)."""

    nonce: U64


@dataclasses.dataclass(frozen=True, slots=True)
class HasStarted:
    """Has this peer started `operation` of `epoch`? Answer with Started."""

    epoch: U64
    operation: OperationName


@dataclasses.dataclass(frozen=True, slots=True)
class VoteResult:
    """The end of vote `call`: `status` OK with the kind's value (`flag`, `body`), or a failure with `text`. `epoch` (of
    the receiver's group) and `census` are those of the moment when the vote ended, also when it is told again."""

    call: U64
    status: U16
    text: Text
    flag: Flag
    body: Body
    epoch: U64
    census: Census


@dataclasses.dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The master lives."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExpelledNotice:
    """The receiver is no member any more. Nothing follows."""

    text: Text


@dataclasses.dataclass(frozen=True, slots=True)
class WhoAreYou:
    """The master has no Hello of this connection (it restarted, or lost the connection): say Hello again."""


@dataclasses.dataclass(frozen=True, slots=True)
class StatePlan:
    """What the receiver does until its SYNC vote `call` ends; it replaces an earlier plan for the same call.
    `serve`: offer all entries under `sync` (region 2i the bytes of entry i, region 2i + 1 its chunk hashes).
    `fetch`: what to get; sources of one entry follow each other, best first. `relay`: serve what was fetched, and all
    else from the own state, before reporting that it is complete. `round` counts the receiver's plans under `sync`."""

    call: U64
    sync: U64
    serve: Flag
    donors: Annotated[tuple[StateDonor, ...], Limit(0, MAX_MEMBERS)]
    fetch: Annotated[tuple[StateSource, ...], Limit(0, 2 * MAX_STATE_ENTRIES)]
    relay: Flag = False
    round: U32 = 0


@dataclasses.dataclass(frozen=True, slots=True)
class StateAgreed:
    """The body of a SYNC vote's good result: what all members hold now, and the receiver's bytes of content."""

    sync: U64
    revision: Revision
    world_size: U32
    sent: U64
    received: U64


# ---------------------------------------------------------------------------------------------- status


@dataclasses.dataclass(frozen=True, slots=True)
class StatusRequest:
    """How is the run? From anyone, without a Hello. The answer is StatusAnswer; none if too many are asked for."""

    version: U32


@dataclasses.dataclass(frozen=True, slots=True)
class StatusMember:
    """An accepted peer. `name` is the beginning of its id: the whole of it would let a stranger speak in its place.
    `late` counts the operations that others waited in since it had not started them, `late_ms` is the longest such
    wait. `waits` says what it waits in, as far as it told; empty for nothing."""

    group: U32
    rank: U32
    name: Annotated[str, Limit(8, 8)]
    address: Address
    port: U16
    host_id: U64
    cores: U32
    heard_ms: U64
    connected: Flag
    returning: Flag
    suspected: Flag
    late: U32
    late_ms: U64
    waits: Text


@dataclasses.dataclass(frozen=True, slots=True)
class StatusNewcomer:
    """A peer that waits to be accepted."""

    group: U32
    name: Annotated[str, Limit(8, 8)]
    address: Address
    port: U16
    heard_ms: U64
    connected: Flag


@dataclasses.dataclass(frozen=True, slots=True)
class StatusGroup:
    """A group in its epoch; `stopped_ms` is how long that has been frozen (0: it runs), `missing` whose report its end
    waits for. `ring`, `shape` and `parents` are as in View. `cause` is why the epoch before it ended; `avoided` are the
    pairs of ranks between which no link is used, one after the other, `broken` those whose link broke lately and is
    used nevertheless."""

    group: U32
    epoch: U64
    size: U32
    ring: Annotated[tuple[U32, ...], Limit(0, MAX_STATUS_MEMBERS)]
    shape: Shape
    parents: Annotated[tuple[U32, ...], Limit(0, MAX_STATUS_MEMBERS)]
    stopped_ms: U64
    missing: Annotated[tuple[U32, ...], Limit(0, MAX_STATUS_MEMBERS)]
    cause: Text
    avoided: Annotated[tuple[U32, ...], Limit(0, MAX_STATUS_MEMBERS)]
    broken: Annotated[tuple[U32, ...], Limit(0, MAX_STATUS_MEMBERS)]


@dataclasses.dataclass(frozen=True, slots=True)
class StatusCall:
    """A joint call under way: `voted` of `voters` have made it, the first `waited_ms` ago; `waits` says for whom it
    waits. `group` means nothing unless `one_group`."""

    name: Annotated[str, Limit(1, 32)]
    one_group: Flag
    group: U32
    voted: U32
    voters: U32
    waited_ms: U64
    waits: Text


@dataclasses.dataclass(frozen=True, slots=True)
class StatusStall:
    """`rank` waits in an operation; for whom, see Stalled. `waited_ms` is up to now."""

    group: U32
    epoch: U64
    operation: OperationName
    rank: U32
    waited_ms: U64
    ranks: Annotated[tuple[U32, ...], Limit(0, MAX_STALLED_RANKS)]
    absent: Flag


@dataclasses.dataclass(frozen=True, slots=True)
class StatusCount:
    """How often something happened since the master's start."""

    event: Annotated[str, Limit(1, 32)]
    count: U64


@dataclasses.dataclass(frozen=True, slots=True)
class StatusAnswer:
    """How the run is. Lists are cut at MAX_STATUS_MEMBERS; the census counts all. `records` is how many journal records
    this master has written; `journal_bytes` the size of the file, 0 without one."""

    version: U32
    uptime_ms: U64
    heartbeat_limit_ms: U32
    epoch: U64
    census: Census
    records: U64
    journal_bytes: U64
    groups: Annotated[tuple[StatusGroup, ...], Limit(0, MAX_STATUS_MEMBERS)]
    members: Annotated[tuple[StatusMember, ...], Limit(0, MAX_STATUS_MEMBERS)]
    newcomers: Annotated[tuple[StatusNewcomer, ...], Limit(0, MAX_STATUS_MEMBERS)]
    calls: Annotated[tuple[StatusCall, ...], Limit(0, MAX_STATUS_MEMBERS)]
    stalls: Annotated[tuple[StatusStall, ...], Limit(0, MAX_STATUS_MEMBERS)]
    counts: Annotated[tuple[StatusCount, ...], Limit(0, 64)]


# ---------------------------------------------------------------------------------------------- encoding


@dataclasses.dataclass(frozen=True, slots=True)
class OtherVersion:
    """Not on the wire: what `decode` makes of a Hello or StatusRequest of another protocol version, for the core to
    refuse."""

    version: int


Message = Any  # of a class in KINDS; isinstance tells

STATE_MESSAGES: tuple[type, ...] = (StateFetched, StateFailed, StatePlan)
"""Classes of messages that the cores hand to GroupSync (peer -> master) or PeerSync (master -> peer)."""


KINDS: dict[int, type] = {
    1: Hello,
    2: Register,
    3: Heartbeat,
    4: Vote,
    5: Suspect,
    6: Report,
    7: Stalled,
    8: Started,
    9: ProbeReply,
    10: Leave,
    11: StateOffer,
    12: StateFetched,
    13: StateFailed,
    14: Withdraw,
    15: StatusRequest,
    16: Linked,
    17: MeasuredLinks,
    64: Refused,
    65: Welcome,
    68: FreezeEpoch,
    69: Probe,
    70: HasStarted,
    71: VoteResult,
    72: HeartbeatReply,
    73: ExpelledNotice,
    74: WhoAreYou,
    75: StatePlan,
    76: StateAgreed,
    77: StatusAnswer,
    78: View,
    79: Dial,
}
"""The numbers on the wire. A number is never given to another message. What a message holds changes with
PROTOCOL_VERSION only, and never where the top of this file says so."""


def _codec(cls: Any) -> tuple[list[Callable[[Any], Any]], list[Callable[[Any], Any]]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls)]
    return (
        [encoder(hints[name], name) for name in names],
        [decoder(hints[name], f"{cls.__name__}.{name}") for name in names],
    )


_CODECS = {cls: (kind, *_codec(cls)) for kind, cls in KINDS.items()}


def clip(text: str) -> str:
    """`text` cut to what a Text field may hold, and free of surrogates that UTF-8 cannot carry."""
    return text[:MAX_TEXT_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def encode(obj: Message) -> bytes:
    """The bytes of a message. The object must be one of the classes here; its fields are trusted (ours)."""
    kind, fields, _ = _CODECS[type(obj)]
    packed: bytes = msgpack.packb([kind, *[read(obj) for read in fields]])
    return packed


def decode(data: bytes) -> Message:
    """The message in `data`. Raises ProtocolError for anything else than exactly one well-formed message."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"message of {len(data)} bytes is over the limit of {MAX_MESSAGE_BYTES}")
    try:
        parts = msgpack.unpackb(data, raw=False, strict_map_key=True, max_ext_len=0, max_map_len=0, use_list=True)
    except (ValueError, msgpack.UnpackException, RecursionError, TypeError) as error:
        raise ProtocolError(f"not a message: {error or type(error).__name__}") from None
    if type(parts) is not list or not parts or type(parts[0]) is not int:
        raise ProtocolError("not a message: no kind")
    cls = KINDS.get(parts[0])
    if cls is None:
        raise ProtocolError(f"unknown message kind {parts[0]}")
    fields = _CODECS[cls][2]
    if cls in (Hello, StatusRequest) and len(parts) > 1 and type(parts[1]) is int and parts[1] != PROTOCOL_VERSION:
        return OtherVersion(parts[1])
    if len(parts) != len(fields) + 1:
        raise ProtocolError(f"{cls.__name__}: {len(parts) - 1} fields instead of {len(fields)}")
    made: Message = cls(*[decode_field(value) for decode_field, value in zip(fields, parts[1:], strict=True)])
    return made
