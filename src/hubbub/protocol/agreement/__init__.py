"""Secure summation: who shares secrets with whom, and the masks that cancel in the sum."""

from hubbub.protocol.agreement.joint_seed import LINK_BYTES, JointSeed, SeedCheck
from hubbub.protocol.agreement.key_agreement import SESSION_BYTES, Agreement, Session, sent_digest
from hubbub.protocol.agreement.mask_stream import MaskStream
from hubbub.protocol.agreement.pair_secrets import SHARE_SEAL_BYTES
