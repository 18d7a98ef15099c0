"""A sum that stays open for weeks: what is on whose disk, and who asks whom.

`collectable` is which studies can be collected, `kept_frames` how frames lie on a disk, `silo_side`
and `node_side` what a party answers, `collecting` how the aggregator goes on whoever is there,
`collection_run` a study's run from its folder to its evidence. What is in the frames is the
business of `hubbub.site.collected`; docs/privacy.md P30 says why it holds.
"""
