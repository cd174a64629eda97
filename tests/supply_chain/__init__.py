"""What a release consists of: archives that anybody can build again, their bill of materials, and licences."""
