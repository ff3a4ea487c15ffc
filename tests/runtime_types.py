"""The checker that the jaxtyping hook applies to the package while tests run; an int is a float, as PEP 484 says."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
