"""What disclosures share whose messages pass through a relay, which takes the senders off (O23)."""
