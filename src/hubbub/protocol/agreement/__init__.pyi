from . import mask_graph as mask_graph
from .joint_seed import (
    JointSeed as JointSeed,
    SeedCheck as SeedCheck,
)
from .key_agreement import (
    SESSION_BYTES as SESSION_BYTES,
    Agreement as Agreement,
    Session as Session,
)
from .mask_stream import (
    MaskStream as MaskStream,
)
from .roll_call import (
    Roll as Roll,
    RollCall as RollCall,
    called as called,
)
from .set_up_check import (
    Faults as Faults,
    SetUpCheck as SetUpCheck,
    payload_of as payload_of,
)
from .digest_list import (
    sent_digests as sent_digests,
)
