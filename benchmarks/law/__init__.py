"""Does what is emitted follow the target's own law, whatever was drafted?"""
