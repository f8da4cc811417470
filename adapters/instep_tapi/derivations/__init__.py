"""What a store derives from the bodies of TAPI (`instep.derivations`), with readers of it."""
