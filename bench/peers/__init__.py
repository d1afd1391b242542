"""One program per system measured, each used as its own documentation recommends for speed.

Every program takes a command, the address of its database, and a number:

    setup ADDRESS          make what it keeps its tasks in
    single ADDRESS N       submit N tasks one after the other, each durable before the next
    bulk ADDRESS N         submit N tasks in the fastest way it offers
    merged ADDRESS N       submit N tasks, 100 at a time at once (tasklib alone)
    paced ADDRESS N        submit a task every 50 ms that carries the time of its submission
    work ADDRESS           run tasks until it is ended

They run in environments of their own, so nothing here imports tasklib but its own program.
"""
