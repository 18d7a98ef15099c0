"""What silos were told of a session or a collection before it began, held against what followed.

An OPEN and a COLLECT have the same words (`session/session_offer.py`): the purpose, the numbers of
the sum, and how features are standardised. The first two must be those of the transcript, which are
the plan's; whether the last is what an earlier sum gave is seen in `session_findings.py`. This file
plays nothing.
"""

from __future__ import annotations

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.session_offer import RefusedError, SessionOffer
from hubbub.core.verification.transcript.frame_records import Kept
from hubbub.core.verification.transcript.transcript_header import Header


def offer_in(kept: Kept, header: Header, numbers: RoundParameters) -> SessionOffer:
    """What an OPEN or a COLLECT says, which is what the transcript is of.

    Raises:
        ProtocolError: it is another purpose's, or has other numbers.
    """
    sender = header.roster.name(kept.sender)
    offer = SessionOffer.read(kept.payload or b"", sender)
    if kept.sender != 0 or offer.purpose != header.purpose:
        raise ProtocolError(
            f"expected the aggregator's {kept.tag.name} for {header.purpose}, found another",
            culprit=sender,
        )
    try:
        offer.check(numbers)
    except RefusedError as error:
        raise ProtocolError(str(error), culprit=sender) from None
    return offer
