"""What a run found, as a document, and its forms: JSON, JUnit XML, SARIF, a page, a summary."""
