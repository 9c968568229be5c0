"""How what comes with the product was made: the built-in models (`train`), the sample runs (`samples`) and the sample
race (`race`), one command each. The product imports nothing of it."""
