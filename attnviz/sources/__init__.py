"""Where attention comes from: each source runs something and hands over one AttentionMap a layer."""
