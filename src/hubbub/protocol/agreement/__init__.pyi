from hubbub.protocol.agreement.joint_seed import (
    JointSeed as JointSeed,
    SeedCheck as SeedCheck,
)
from hubbub.protocol.agreement.key_agreement import (
    SESSION_BYTES as SESSION_BYTES,
    Agreement as Agreement,
    Session as Session,
    sent_digest as sent_digest,
)
from hubbub.protocol.agreement.mask_stream import (
    MaskStream as MaskStream,
)
