"""One unit of evidence: a capture (recording, markers, clock fit) as stored; salvage after a kill."""
