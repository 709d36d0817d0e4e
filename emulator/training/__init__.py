"""Local training of many clients as one job; `emulator.training.base.Trainer` is the seam."""
