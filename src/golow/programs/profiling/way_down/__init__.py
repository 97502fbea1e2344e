"""What stands between the call of a layer and the vendor's routine, at every level."""
