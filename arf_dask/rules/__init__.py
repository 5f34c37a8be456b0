"""Rules: relations between the columns of a row, found in the data or declared, that synthetic rows satisfy.

A rule is a text in a small grammar (`grammar`), parsed into an expression (`expressions`) and evaluated on frames
(`evaluation`). Rules are found on a sample (`finding` and the `*_search` modules) and verified on all rows
(`verification`). What is modelled in the place of a column is a transform (`transforms`). A `Relations` object
(`relations`) converts the user's rows to modelled rows and back.
"""
