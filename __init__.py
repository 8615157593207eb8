"""branchwise: search strategies that own a KV-sharing engine under one hard budget."""
