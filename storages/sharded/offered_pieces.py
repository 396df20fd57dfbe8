"""The pieces of shared memory that a learner offers to a shard for its replies."""

from storages.sharded.packed_batches import arrays_in, bytes_of, layout_of
from storages.sharded.replay_shard import ShardReply
from storages.sharded.shared_memory import Piece


class OfferedPieces:
    """The pieces of one shard: as many as it has requests at a time, each as large as its largest reply so far.

    The first replies of a shard are sent as messages. So are all of a shard on another machine, those of one that has
    just replaced another, and those that are larger than any before.
    """

    def __init__(self) -> None:
        self._free: list[Piece] = []
        self._size = 0
        self._identity: str | None = None
        self._can_share = True
        """False once a piece could not be made, or a new one not be mapped by the shard."""

    def take(self) -> Piece | None:
        """Return a piece for a reply; None if the reply has to be sent."""
        if not self._can_share or not self._size:
            return None
        if self._free:
            return self._free.pop()
        try:
            return Piece(self._size)
        except OSError:
            self._can_share = False
            return None

    def read(self, piece: Piece | None, reply: ShardReply) -> ShardReply:
        """Return the reply to a request with its batches, which are in the piece if the shard could write to it.

        Args:
            piece: what :meth:`take` returned for the request.
            reply: what the shard answered.
        """
        if reply.summary.identity != self._identity:
            self._identity, self._can_share = reply.summary.identity, True
        if reply.layout is not None:
            assert piece is not None
            piece.mark_as_used()
            batches = arrays_in(piece.memory, reply.layout)
            return reply._replace(batches=batches, layout=None, release=lambda: self._free.append(piece))
        needed = bytes_of(layout_of(reply.batches))
        self._size = max(self._size, needed)
        # The shard of a piece that was used has been replaced; one that is too small will be by a larger one.
        if piece is not None and reply.batches and needed <= piece.place.size and not piece.was_used:
            self._can_share = False
        return reply
