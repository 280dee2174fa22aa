"""The Hugging Face Trainer, and TRL's, whose Trainers are derived from it."""
