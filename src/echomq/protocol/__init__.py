"""The contract as values: no I/O, no clock but the mint's, no await.

Each module is one section's pure half of the protocol page; nothing here knows sockets or the driver.
"""
