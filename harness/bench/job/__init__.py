"""One device's job: the meter starts first and stops last, and what there is becomes a capture.

``attempt`` goes through the stages. Whoever runs it gives an assignment (``workload``), and a decider and
further ``hooks`` where the job is more than a measurement.
"""
