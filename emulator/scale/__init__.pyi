from emulator.scale.cluster import Cluster, connected
from emulator.scale.ray_sweep import play_sweep, unfinished
from emulator.scale.ray_trainer import RayTrainer, open_ray_trainer

__all__ = [
    "Cluster", "RayTrainer", "connected", "open_ray_trainer", "play_sweep", "unfinished",
]  # fmt: skip
