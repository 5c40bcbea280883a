"""Multiplexes many calls on one long-lived gRPC stream between two processes.

A gRPC call of its own costs close to a millisecond of CPU time on both sides together; as one of many items in a
message on an open stream, the same call costs some microseconds. Both sides keep an outbox that is flushed whenever the
last write is done: alone, an item is sent at once; under load, batches form by themselves. Ordinary pieces of an answer
wait for each other some milliseconds; with many calls in flight a client pauses as long after a message.
"""
