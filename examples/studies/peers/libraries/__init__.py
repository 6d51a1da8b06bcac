"""The library beside its peers, each in its own environment, driven in its best documented way (November 2026).

    python3.11 -m examples.studies.peers.libraries install FOLDER   environments with pinned versions, gigabytes
    python -m examples.studies.peers.libraries run --environments FOLDER --out ROWS.jsonl   on one thread, three rounds
    python -m examples.studies.peers.libraries report ROWS.jsonl    the table in Markdown: ours, each peer, the ratio
    python -m examples.studies.peers.libraries keep ROWS.jsonl      puts them into peers.csv, for the guide's page

`jobs` has what is measured and who takes part, the ``by_`` files drive a library each, and their first lines say how;
`ours` drives this one. A peer runs in a process of its own, in turn with the others; tinygp, NumPyro by hand and this
library share one (`in_one_process`). `programs` has the kernels and the memory of our programs.
"""
