from attention_check.reference import Reference, Rotary, allowed, packed, together
