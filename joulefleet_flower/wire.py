"""What server and clients call things: the kinds of messages, and the keys of what is in them.

=================== ========================================= ==============================================
message             asks a client to                          answer: a MetricRecord called ``metrics``
=================== ========================================= ==============================================
``query.register``  say who it is                             ``num-examples``; ``client``, ``label-counts``,
                                                              ``has-losses``, ``has-accuracy``
``train.probe``     train its first local epoch and keep      ``num-examples``, ``loss``, ``loss-rms``; the
                    where it is                               update only if ``upload`` is set
``train``           train from the model that comes with the  the same, and the update as an ArrayRecord
                    message or, if ``first-epoch`` is not 0,  called ``arrays``
                    from where its probe left it
``evaluate.loss``   measure the loss of a model on its data   ``loss``
``evaluate``        measure the accuracy on held-out samples  ``accuracy``
=================== ========================================= ==============================================
"""

REGISTER = "query.register"
PROBE = "train.probe"
TRAIN = "train"
LOSS = "evaluate.loss"
EVALUATE = "evaluate"

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
"""Records of a message; the first two are the names that Flower's own strategies use."""

ROUND, FIRST_EPOCH, EPOCHS = "server-round", "first-epoch", "epochs"
PROXIMAL_MU = "proximal-mu"  # as Flower's own FedProx calls it
UPLOAD, ONE_BATCH = "upload", "one-batch"
"""Keys of a ConfigRecord."""

SAMPLES = "num-examples"  # by which Flower weights updates
CLIENT, LABEL_COUNTS = "client", "label-counts"
HAS_LOSSES, HAS_ACCURACY = "has-losses", "has-accuracy"  # whether it can tell them, 1 or 0
MEAN_LOSS, RMS_LOSS, ACCURACY = "loss", "loss-rms", "accuracy"
"""Keys of a MetricRecord."""
