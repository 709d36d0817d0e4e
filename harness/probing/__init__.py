"""What stopping after the first epoch saves: the same round with and without early exit, counted plainly.

On the bench: ``plan``, ``schedule``, ``round``, ``run``, then ``savings`` and ``validation``. Predicted from
profiles: ``predict``, ``formula``, ``profile_costs``, ``expected``. Played by the emulator: ``emulated``,
``replay``. ``fidelity`` says how well profiles predict the rounds of a federation.
"""
