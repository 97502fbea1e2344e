"""golow as a backend of torch.compile: graphs of Dynamo and AOTAutograd as direct plans."""
