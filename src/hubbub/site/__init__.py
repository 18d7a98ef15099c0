"""What an institution runs: its part of the network, its sources, sums collected over weeks."""
