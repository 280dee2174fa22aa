"""A LightningModule in lightning.Trainer."""
