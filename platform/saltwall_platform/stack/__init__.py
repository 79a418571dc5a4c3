"""Everything that runs on one machine for `saltwall up`: model, engine, gateway, supervisor."""
