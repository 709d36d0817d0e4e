from emulator.policies.imitation import CloningOptions
from emulator.policies.recipes import recipe
from emulator.policies.train import Recipe, check_experts, client_epochs, train_by_trying, train_fedrank
from emulator.selectors.neural.policy import (
    POLICY_SUFFIX,
    PolicyManifest,
    any_policy,
    packaged_policies,
    write_policy,
)

__all__ = [
    "POLICY_SUFFIX", "CloningOptions", "PolicyManifest", "Recipe", "any_policy", "check_experts",
    "client_epochs", "packaged_policies", "recipe", "train_by_trying", "train_fedrank",
    "write_policy",
]  # fmt: skip
