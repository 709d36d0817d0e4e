"""FedZero: clients that share excess energy, by a mixed-integer programme."""
