"""Joint batches without anybody knowing whose records are in them: the paper's Algorithm 2.

    onion_layers    HPKE layers around tokens, and the names of forms
    token_list      what is published, and the finished list
    list_context    where messages belong, and the comparison of what all saw
    publications    what of a list in the making everybody can check
    mixer           one silo's side, a pure state machine
    verdict         who lied, once a list is opened
    process_pool    all cores at work (pool_worker: one of them)
    batch_schemes   from a list and a seed to a batch

Knows counts of records and nothing of the records themselves, no noise and no accounting.
docs/sampling.md describes the protocol and what it does and does not promise.
"""
