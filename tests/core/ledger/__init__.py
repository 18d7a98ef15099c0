"""The privacy ledger (P15): written before anything leaves, chained, signed, and able to refuse."""
