"""What a disclosure may say: a class for each of rules, plan, words, protection and answers."""
