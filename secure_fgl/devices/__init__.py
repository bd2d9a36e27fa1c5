"""On which device clients of a simulation train: the processor, or a GPU.

Sites that run apart train on the processor: their answers are computed in a process to which the
kernel gives no device.
"""
