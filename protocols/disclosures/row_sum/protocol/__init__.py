"""The protocol of rows itself (docs/adr/0051): bytes in, bytes out, no plan and no session."""
