from .collector import (
    Collector as Collector,
)
from .deposit import (
    Deposit as Deposit,
    Deposited as Deposited,
    read_deposit as read_deposit,
)
from .fixed_set import (
    FixedSet as FixedSet,
)
from .node import (
    CollectionNode as CollectionNode,
    NodeState as NodeState,
)
from .collection_opening import (
    Opening as Opening,
    CollectionPlace as CollectionPlace,
)
from .seeds import (
    SEALED_SEED_BYTES as SEALED_SEED_BYTES,
)
