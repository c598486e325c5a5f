"""What several tests share: oracles, fixtures, generators of bad input."""
