"""What is wrong with somebody's table of training runs: pure detectors over typed rows."""
